"""A device that can hang: its log lies behind a server process that can be made to stand still."""

import os
import shutil
import subprocess

from .process import Process, wait_until


class HangingFile:
    """Puts a file behind nbdkit and nbdfuse, and a link to it in its place.

    While nbdkit is stopped, whoever reads, writes or flushes the file waits in the kernel, and gets no error.
    """

    def __init__(self, path, folder):
        self.path = path
        self.folder = folder
        folder.mkdir()
        self.backing, self.point, socket = folder / "backing", folder / "mounted", folder / "socket"
        self.point.mkdir()
        size = path.stat().st_size
        shutil.move(path, self.backing)
        command = ["nbdkit", "--foreground", "--unix", socket, "file", self.backing]
        self.server = Process(command, folder / "nbdkit.log")
        wait_until(socket.exists, 30, "nbdkit")
        served = self.point / "file"
        self.mount = Process(["nbdfuse", served, f"nbd+unix:///?socket={socket}"], folder / "nbdfuse.log")

        def there():
            assert self.mount.alive, f"nbdfuse ended\n{self.mount.log_tail()}"
            return served.exists()

        wait_until(there, 30, "nbdfuse")
        assert served.stat().st_size == size
        os.symlink(served, path)

    def hang(self):
        self.server.pause()

    def answer(self):
        self.server.resume()

    def close(self):
        """The file is where it was. To be called when nobody has it open any more."""
        self.answer()
        subprocess.run(["fusermount3", "-u", "-z", self.point], check=False, capture_output=True)
        self.mount.kill()
        self.server.kill()
        self.path.unlink()
        shutil.move(self.backing, self.path)
