"""Messages as HTTP has them: JSON bodies, headers, frames, CloudEvents, streams."""
