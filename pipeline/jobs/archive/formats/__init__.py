"""Keys and values as columns, and back to the same bytes.

formats       the formats as given on the command line
shapes        a frame in these formats, and the way back
text_codecs   text and JSON, with Spark's expressions
avro          Avro to Arrow and back; avro_columns: on Spark's batches; writers, avro_resolution: of other schemas
"""
