"""Users and delegation tokens in the controller process."""
