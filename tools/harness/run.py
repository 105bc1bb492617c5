"""Running the clients that are not ours."""

import subprocess


def run(*command, within_s=300, check=True, **options):
    """Runs a command to its end and returns it; a failure shows what it printed."""
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, timeout=within_s, **options)
    if check:
        assert done.returncode == 0, f"{' '.join(words)}: exit code {done.returncode}\n{done.stdout}{done.stderr}"
    return done
