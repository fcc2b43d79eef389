"""What Backscroll costs in a history of any length: time per stage, memory, disk."""
