"""How well the memory calculation agrees with real vLLM: records, scores, floors, and a page.

Records are facts that were measured or computed by vLLM itself. Nothing here tunes anything: the
package asks `tonnage fit` the questions and compares the answers.
"""
