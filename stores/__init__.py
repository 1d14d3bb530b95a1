"""What is kept and how it survives a crash: Parquet partitions, the dataset, models, predictions."""
