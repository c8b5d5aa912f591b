"""Faults of the data source as a whole: each row that was sent is read once, whatever dies in between.

The table says which changes are tested for a repetition, after which effects. The effects of streams and of named
batches are in `redone`, those of an archive in `test_redo_archive`; "all" means all of them, in one session of Spark.
A dash: no test. Where only `make test-long` has all of them, `make test-rest` has those that are named, or some.

    changed meanwhile         a stream                   a batch with a name       a run of the archive
    ------------------------  -------------------------  ------------------------  --------------------------
    AQE: advisory size, least all: test_redo_cutting     all: test_redo_batches    all: test_redo_archive
      size, parallelism         (the same tasks)
    AQE: on or off            refused, unless a setting  half: test_redo_batches   intent: test_redo_archive
                                forbids it (the same)
    AQE: coalescing, skew     off with AQE               half: test_redo_batches   tasks, renames:
                                                                                     test_redo_archive
    a joined table's size     all: test_redo_cutting     half (broadcast or not)   joins nothing
    shuffle partitions        all, refused: the same     all: test_redo_batches    all: test_redo_archive
    cores                     begun: test_changes        all: as AQE counts them   all: as AQE counts them
                                (another driver)
    partitions of topics      all: test_changes          all: test_redo_batches    all: test_redo_archive
    retention                 all: test_changes          half, told: refused       all behind the intent
    compaction                all: test_redo_compacted   refused as retention is   renames: test_redo_archive
    leaders                   each of another role:      all; sent, half:          tasks, intent:
                                test_redo_leaders          test_redo_leaders         test_redo_leaders
    topics of rows, a table   all, of a stage:           half, told: refused       reads no table
      that enriches them        test_redo_tables
    quotas                    all: test_redo_quotas      half, sent:               tasks: test_redo_quotas
                                                           test_redo_quotas

Each job has one fault in test_every_job, which belongs to `make test`. Processes are killed in test_deaths and
test_brokers, those of jobs in `jobs`: test_archive_faults, test_accounted, test_restore, test_stages_faults. Every step
of an archive's commit is in test_archive_store and test_archive_writers, the steps of a unit's transaction are in
test_transactions.
"""
