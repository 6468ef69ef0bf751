"""The log of a run, its export, and third-party logs.

`format`
    The log's header, events and schema, and `RecordError`.
`writer`, `reader`
    The log: an Arrow IPC *stream*, one record batch after the other, each with its place in the run and a checksum.
    Flushed batches survive ``kill -9``; the reader skips incomplete data and reports it.
`repair`
    Check of a damaged log, and a new log of all its complete batches.
`folder`
    The recordings in a folder, and which of them may be deleted.
`export`
    A log as CSV or Parquet.
`tables`
    CSV and tab-separated files of other systems as samples for replay.

A log's columns are the fixed part of the row, one column per name (float64, or int64 for whole numbers), then
``circuit`` (list<float64>: the circuit's values, whose number and names change when the circuit is switched) and
``events`` (list<string>: JSON objects, null for nearly all rows). A record batch holds rows of one circuit only: a new
circuit starts a new batch, and the first row of that batch holds the event ``{"kind": "circuit", "names": [...],
"packed": {...}}``.
"""
