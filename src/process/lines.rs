//! Cuts a stream of bytes into lines, in bounded memory.

/// Collects one stream's bytes and hands them on line by line.
///
/// A line ends at `\n`, at `\r` (progress displays, firmware), or at any number
/// of `\r` with a `\n` behind them, which serial consoles print.
#[derive(Debug)]
pub struct Lines {
    /// Beginning of the current line, at most `cap` bytes.
    line: Vec<u8>,
    /// Length of the current line, with what was cut off.
    length: u64,
    cap: usize,
    /// The previous byte was a `\r`: a line end that may go on.
    after_cr: bool,
}

impl Lines {
    /// Lines longer than `cap` bytes are cut there.
    pub fn new(cap: usize) -> Self {
        Lines { line: Vec::new(), length: 0, cap, after_cr: false }
    }

    /// Takes the next bytes and calls `emit` with each line that they complete,
    /// without its end.
    pub fn push(&mut self, mut chunk: &[u8], mut emit: impl FnMut(&[u8])) {
        while let Some(at) = chunk.iter().position(|b| matches!(b, b'\n' | b'\r')) {
            self.extend(&chunk[..at]);
            let same_end = at == 0 && self.after_cr;
            if !same_end {
                self.emit(&mut emit);
            }
            self.after_cr = chunk[at] == b'\r';
            chunk = &chunk[at + 1..];
        }
        if !chunk.is_empty() {
            self.after_cr = false;
            self.extend(chunk);
        }
    }

    /// Calls `emit` with the last line if the stream ended without a line end.
    pub fn finish(&mut self, mut emit: impl FnMut(&[u8])) {
        if self.length > 0 {
            self.emit(&mut emit);
        }
    }

    fn extend(&mut self, bytes: &[u8]) {
        let room = self.cap - self.line.len();
        self.line.extend_from_slice(&bytes[..bytes.len().min(room)]);
        self.length += bytes.len() as u64;
    }

    fn emit(&mut self, emit: &mut impl FnMut(&[u8])) {
        if self.length > self.line.len() as u64 {
            let marker = format!(" [cut: the line has {} bytes]", self.length);
            self.line.extend_from_slice(marker.as_bytes());
        }
        emit(&self.line);
        self.line.clear();
        self.length = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The lines of `chunks` with a cap of 8 bytes.
    fn lines(chunks: &[&str]) -> Vec<String> {
        let mut lines = Lines::new(8);
        let mut out = Vec::new();
        let mut emit = |line: &[u8]| out.push(String::from_utf8_lossy(line).into_owned());
        for chunk in chunks {
            lines.push(chunk.as_bytes(), &mut emit);
        }
        lines.finish(&mut emit);
        out
    }

    #[test]
    fn line_ends() {
        assert_eq!(lines(&["a\nb\n"]), ["a", "b"]);
        assert_eq!(lines(&["a\n\n\nb"]), ["a", "", "", "b"]);
        assert_eq!(lines(&["a\r\nb\r\n"]), ["a", "b"]);
        assert_eq!(lines(&["a\r\n\r\nb"]), ["a", "", "b"]);
        assert_eq!(lines(&["a\r\r\nb"]), ["a", "b"]);
        assert_eq!(lines(&["10%\r20%\rdone\n"]), ["10%", "20%", "done"]);
        assert_eq!(lines(&["\n"]), [""]);
        assert!(lines(&[]).is_empty());
        assert!(lines(&[""]).is_empty());
    }

    #[test]
    fn chunks_split_anywhere() {
        assert_eq!(lines(&["a", "b", "\r", "\n", "c", "\n"]), ["ab", "c"]);
        assert_eq!(lines(&["a\r", "b"]), ["a", "b"]);
        assert_eq!(lines(&["a\r", "", "\n", "\n", "b"]), ["a", "", "b"]);
    }

    #[test]
    fn long_lines_are_cut() {
        assert_eq!(lines(&["12345678\n"]), ["12345678"]);
        assert_eq!(lines(&["123456789\nx\n"]), ["12345678 [cut: the line has 9 bytes]", "x"]);
        assert_eq!(lines(&["1234567", "8901", "2"]), ["12345678 [cut: the line has 12 bytes]"]);
    }

    #[test]
    fn control_bytes_stay() {
        assert_eq!(lines(&["\x1b[0m\0\t\n"]), ["\x1b[0m\0\t"]);
    }
}
