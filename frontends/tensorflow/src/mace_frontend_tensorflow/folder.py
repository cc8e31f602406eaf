"""What a SavedModel calls its graph, and the folder of its variables."""

SAVED, VARIABLES = "saved_model.pb", "variables"
