"""The record: one file per rank that says what it did and does. The only thing that goes up.

    rank (native/core/record.hpp writes)  ->  <run>/rank00012.ddr  ->  reader, tail, diagnosis

Reading needs the standard library only. Nothing here is imported by native code; the numbers of the
layout are in `format.py` and a test compares them with C++.
"""
