"""The record of a run, and the records of others.

`format`
    The log's header, events and schema, and `RecordError`.
`writer`, `reader`
    The log: an Arrow IPC *stream*, one record batch after the other, each with its place in the run and a checksum.
    What was flushed is there after ``kill -9``; the reader leaves out what isn't whole and names it.
`repair`
    What is missing in a damaged log, and a new log of all that is whole.
`folder`
    The recordings in a folder, and which of them may go.
`export`
    A log as CSV or Parquet.
`tables`
    CSV and tab-separated files of other people as samples for replay.

A log's columns are the fixed part of the row, one float64 column per name, then ``circuit`` (list<float64>: the
circuit's values, whose number and names change when the circuit is switched) and ``events`` (list<string>: JSON
objects, null for nearly all rows). A record batch holds rows of one circuit only: a new circuit starts a new batch,
and the first row of that batch holds the event ``{"kind": "circuit", "names": [...], "packed": {...}}``.
"""
