"""What every measurement needs: the brokers, the clients that load them, their tools, and the results kept."""
