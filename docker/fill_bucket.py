"""Copy a folder into a bucket, which is created if necessary: `python fill_bucket.py FOLDER BUCKET`.

Takes the place of whatever writes partitions to your object store; the server and the keys come from the environment.
"""

import os
import sys

from pyarrow import fs

folder, bucket = sys.argv[1:]
server = fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"], allow_bucket_creation=True)
server.create_dir(bucket)
fs.copy_files(folder, bucket, source_filesystem=fs.LocalFileSystem(), destination_filesystem=server)
