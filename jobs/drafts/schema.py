"""The JSON Schema of job files, made from their sections, by which editors complete and check keys."""

import json
from typing import Any

from ridgestream.jobs.config.job_file import Job

SCHEMA_URL = "https://raw.githubusercontent.com/ridgestream/ridgestream/main/docs/reference/job.schema.json"
"""Where editors find it."""


def job_schema() -> dict[str, Any]:
    """Return the schema: every key with its type, bounds, default and sentence; other keys are refused."""
    about = {"title": "Ridgestream job", "description": "A job file; paths are relative to its folder."}
    draft = {"$schema": "https://json-schema.org/draft/2020-12/schema", "$id": SCHEMA_URL}
    return draft | Job.model_json_schema() | about


def schema_text() -> str:
    """Return the schema as the command prints it."""
    return json.dumps(job_schema(), indent=1, ensure_ascii=False) + "\n"
