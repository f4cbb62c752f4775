"""Recordings: what a machine was fed, so that it can be fed the same again.

A recording is a file of JSON lines. The first says of which machine it is, which version wrote it,
and what the machine was made with; each other is one input: its number, the loop's clock, the input
and what the machine did about it. The clock is not rebased: a sum that is rounded otherwise may
fall on the other side of a time-out.

`values` makes JSON of what the machines hear, and back; `recorder` writes, beside the loop;
`reading` reads, and feeds a machine anew. A program's `Codec` says what its own machine hears.
"""
