"""Apache Parquet (https://parquet.apache.org/docs/file-format/), read by row groups."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import attrs

from rtx_core import Data, hookimpl
from rtx_plugins.data.columnar import ROWS_AT_ONCE, ColumnarData, first_bytes

if TYPE_CHECKING:
    import pyarrow as pa


@attrs.frozen(kw_only=True)
class Parquet(ColumnarData):
    """Parquet tables; no more than a row group's pages are in memory."""

    def batches(self, file: Path) -> Iterator[pa.RecordBatch]:
        """Decode the columns that are asked for, row group by row group."""
        import pyarrow.parquet as pq

        first_bytes(file, "Parquet")
        with pq.ParquetFile(file) as table:
            columns = self.chosen(table.schema_arrow.names, file)
            # One thread: how many a run may use is its own setting.
            yield from table.iter_batches(batch_size=ROWS_AT_ONCE, columns=columns, use_threads=False)


@hookimpl
def data() -> dict[str, type[Data]]:
    """``data.parquet``."""
    return {"parquet": Parquet}
