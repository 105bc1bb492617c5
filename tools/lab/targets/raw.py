"""The file itself: what the disk under all the others gives."""

from .base import Target, make_files


class Raw(Target):
    name = "raw"
    title = "raw file"
    about = "A file of the disk that all the others stand on, through libaio with O_DIRECT. One copy, no checksums."
    tools = ("fio:fio",)
    variants = {"raw": {}}

    def start(self):
        self.files = make_files(self.folder, self.place.volumes, self.place.volume_bytes)

    def engine(self, volume=0):
        return ["--ioengine=libaio", f"--filename={self.files[volume]}"]

    def path(self, volume=0):
        return self.files[volume]
