"""Facts as typed quads: counts, durations and orders computed from them, SPARQL, RDF in and out."""
