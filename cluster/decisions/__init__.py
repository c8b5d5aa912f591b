"""What controllers decide, as pure functions: leaders, replicas, reassignments, changes of topics and configs."""
