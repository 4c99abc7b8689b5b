"""What files say. Nothing is started and nothing is loaded."""
