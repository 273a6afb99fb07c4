"""The library: the only place that composes rooms. The public names are those of `meshwright` itself."""
