"""The benchmark behind `./dev bench`: the same fio tests on Azekura and on qemu-nbd over a raw file, turn by turn."""
