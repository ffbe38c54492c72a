"""torchtitan's TOML, of both layouts."""
from __future__ import annotations

from readers.reading import Reading


def test_all_that_is_refused_is_said_at_once(reading: Reading) -> None:
    head = "[model]\nname = 'llama3'\nflavor = 'debugmodel'\n[training]\nsteps = 20\n[parallelism]\n"
    reading.refused(head + "tensor_parallel_degree = 'x'\n[unheard_of]\na = 1\n[unknown]\nb = 2\n",
                    "2 things are not done here", '"unheard_of"', '"unknown"')
    reading.refused(head + "tensor_parallel_degree = 'x'\n[optimizer]\nname = 'Lamb'\n", "tensor_parallel_degree", "Lamb")
