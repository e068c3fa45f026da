"""What a box is: planned purely, built by thin verbs, judged purely."""
