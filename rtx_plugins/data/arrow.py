"""Apache Arrow IPC (https://arrow.apache.org/docs/format/Columnar.html): Feather files, and streams as datasets has."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rtx_core import Data, DataError, hookimpl
from rtx_plugins.data.columnar import ColumnarData, first_bytes

if TYPE_CHECKING:
    import pyarrow as pa

_FILE = b"ARROW1"
_FEATHER_1 = b"FEA1"


@attrs.frozen(kw_only=True)
class Arrow(ColumnarData):
    """Arrow's file format (also called Feather, version 2) and its stream format, whichever a file is."""

    def batches(self, file: Path) -> Iterator[pa.RecordBatch]:
        """Map the file into memory, so that only the pages that are read take any."""
        import pyarrow as pa

        start = first_bytes(file, "Arrow")
        if start.startswith(_FEATHER_1):
            raise DataError(file, None, "this is Feather version 1; write it again as version 2")
        if not start:
            raise DataError(file, None, "no records in this file")
        with pa.memory_map(str(file)) as content:
            if start == _FILE:
                with pa.ipc.open_file(content) as table:
                    columns = self.chosen(table.schema.names, file)
                    for number in range(table.num_record_batches):
                        yield table.get_batch(number).select(columns)
            else:
                with pa.ipc.open_stream(content) as table:
                    columns = self.chosen(table.schema.names, file)
                    for batch in table:
                        yield batch.select(columns)


@hookimpl
def data() -> dict[str, type[Data]]:
    """``data.arrow``."""
    return {"arrow": Arrow}
