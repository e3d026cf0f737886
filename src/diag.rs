//! Faults of a matrix file: where, what and how to mend it. Pure text in,
//! text out.

use std::ops::Range;

use annotate_snippets::{AnnotationKind, Level, Renderer, Snippet};

/// One fault of an input file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Diagnostic {
    /// What is wrong, naming the value.
    pub message: String,
    /// Bytes of the file that are wrong.
    pub span: Range<usize>,
    /// A few words at the span; may be empty.
    pub label: String,
    /// How to mend it.
    pub help: String,
}

/// All faults of one file, for people.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{}", self.render(false))]
pub struct Diagnostics {
    /// Name of the file as the user gave it.
    pub file: String,
    /// Its text.
    pub text: String,
    /// The faults, in any order.
    pub faults: Vec<Diagnostic>,
}

impl Diagnostics {
    /// The faults in file order in the form of compilers' messages, with the
    /// offending line each, ending in a count.
    pub fn render(&self, colour: bool) -> String {
        let mut faults: Vec<_> = self.faults.iter().collect();
        faults.sort_by_key(|d| d.span.start);
        let renderer = if colour { Renderer::styled() } else { Renderer::plain() };
        let mut out = String::new();
        for fault in &faults {
            out.push_str(&renderer.render(&[self.report(fault)]));
            out.push_str("\n\n");
        }
        let n = faults.len();
        let s = if n == 1 { "" } else { "s" };
        out.push_str(&format!("{}: {n} error{s}; nothing was built", self.file));
        out
    }

    fn report<'a>(&'a self, fault: &'a Diagnostic) -> annotate_snippets::Group<'a> {
        let end = self.text.len();
        let span = fault.span.start.min(end)..fault.span.end.min(end);
        let snippet = Snippet::source(self.text.as_str())
            .path(self.file.as_str())
            .annotation(AnnotationKind::Primary.span(span).label(fault.label.as_str()));
        let group = Level::ERROR.primary_title(fault.message.as_str()).element(snippet);
        if fault.help.is_empty() { group } else { group.element(Level::HELP.message(fault.help.as_str())) }
    }
}
