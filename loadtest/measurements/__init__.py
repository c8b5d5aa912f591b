"""What the bench measures of one broker. (`clusters` has the rest.)"""
