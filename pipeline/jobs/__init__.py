"""The jobs of `odradek pipeline`, each also for `spark-submit`: archive, restore, stages, audit."""
