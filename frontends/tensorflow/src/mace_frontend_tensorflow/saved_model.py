"""Names of the files of a SavedModel, in a module of their own: the plugin loads without protobuf."""

SAVED_MODEL_FILE, VARIABLES_FOLDER = "saved_model.pb", "variables"
