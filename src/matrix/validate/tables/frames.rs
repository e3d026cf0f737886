//! Tables of stack frames.

use super::super::Check;
use super::Scope;
use crate::matrix::hint::quoted;
use crate::matrix::raw::RawTable;
use crate::model::Layout;

const TOP: u32 = 10;

pub(super) fn frames(raw: &RawTable, scope: &Scope, check: &mut Check) -> Option<Layout> {
    let top = check.number_or("top", raw.top.as_ref(), 1..=1000, TOP) as usize;
    let Some(at) = &raw.compare else {
        return Some(Layout::Frames { compare: None, top });
    };
    let axis = &scope.axes.list[scope.axes.expect("`compare`", at, check)?];
    if axis.values.len() == 1 && scope.axes.whole() {
        let message = format!("`compare` compares kernels, but axis `{}` has one value", axis.name);
        let several = scope.axes.list.iter().filter(|a| a.values.len() > 1).map(|a| a.name.as_str());
        let help = format!("remove it, or choose an axis with several values: {}", quoted(several));
        check.fault(&at.span, message, help);
    }
    Some(Layout::Frames { compare: Some(axis.name.clone()), top })
}
