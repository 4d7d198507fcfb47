"""Does it fit on n devices of this kind? Bytes, term by term, and which degrees are legal."""
