"""What `odradek pipeline` runs, each also with `spark-submit`: archive, restore, stages, audit."""
