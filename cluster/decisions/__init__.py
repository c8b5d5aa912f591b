"""The controller's decisions as pure functions: leaders, replicas, reassignments, changes of topics and configs."""
