"""The likely inside of containers that a depth limit cut off."""
