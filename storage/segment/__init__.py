"""One segment: its batches one after the other or in bulk, its sparse indexes, leader epochs."""
