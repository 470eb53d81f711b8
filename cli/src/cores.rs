//! `--cpu`: cores that threads are pinned to, checked before anything starts.

/// A core that this process may use; for an option.
pub(crate) fn one(word: &str) -> Result<usize, String> {
    let Ok(core) = word.trim().parse::<usize>() else {
        return Err(format!("'{word}' is no core: write numbers, as in 0,1"));
    };
    let allowed: Vec<usize> = core_affinity::get_core_ids().unwrap_or_default().iter().map(|core| core.id).collect();
    if allowed.contains(&core) {
        return Ok(core);
    }
    let shown: Vec<String> = allowed.iter().map(usize::to_string).collect();
    Err(match std::path::Path::new(&format!("/sys/devices/system/cpu/cpu{core}")).exists() {
        true => format!("this process may not use core {core}: its affinity mask allows {}", shown.join(", ")),
        false => format!("there is no core {core}: this process may use {}", shown.join(", ")),
    })
}

/// A list of them, with commas between.
pub(crate) fn check_list(list: &str) -> Result<(), String> {
    list.split(',').try_for_each(|word| one(word).map(|_| ()).map_err(|e| format!("{list}: {e}")))
}
