"""`python -m tonnage`: the same program as the console script `tonnage`."""

import sys

from tonnage.cli.main import main

sys.exit(main())
