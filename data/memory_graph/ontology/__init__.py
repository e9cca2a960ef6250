"""Views facts as typed quads by an ontology: computed answers, SPARQL, import and export of RDF."""
