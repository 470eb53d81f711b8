//! The notation of the functions of the boundary: one line for each.
//!
//! `Verb name(arguments) -> result = verb, how it fails, about …, before …, after |result| …;`
//!
//! - How it fails: `errno` (which is returned, and set), `minus_one`, `null` (errno is set) or `never`.
//! - `about`: the subject of the call for faults, an [`super::before::About`]; nothing if omitted.
//! - `before`: the observer's call before the verb, for example for an object that is about to be destroyed.
//! - `after`: the observer's call after the verb, with the result.

/// The result of a call that a fault fails.
macro_rules! failed {
    (errno $e:ident) => {{
        $e.set();
        $e.0
    }};
    (minus_one $e:ident) => {{
        $e.set();
        -1
    }};
    (rereg $e:ident) => {{
        $e.set();
        $crate::abi::IBV_REREG_MR_ERR_CMD
    }};
    (null $e:ident) => {{
        $e.set();
        std::ptr::null_mut()
    }};
    (never $e:ident) => {{
        let _ = $e;
    }};
}

/// The result of a call that succeeds without being made.
macro_rules! succeeded {
    (null) => {
        std::ptr::null_mut()
    };
    (never) => {
        ()
    };
    ($how:ident) => {
        0
    };
}

/// The subject of a call: nothing, unless its line contains it.
macro_rules! about {
    () => {
        $crate::boundary::before::About::default()
    };
    ($about:expr) => {
        $about
    };
}

/// Whether the boundary is unused: the function in brackets decides. Without a function, the boundary is in use.
macro_rules! nobody {
    ([]) => {
        false
    };
    ([$is_on:path]) => {
        !$is_on()
    };
}

/// Functions, each with its three stages. The brackets before them contain the function that returns whether the boundary is in use, for
/// exported functions.
macro_rules! through {
    ($is_on:tt $(
        $(#[$doc:meta])*
        $verb:ident $name:ident($($arg:ident: $type:ty),*) $(-> $result:ty)? = $inner:path, $how:ident
            $(, about $about:expr)? $(, before $before:expr)? $(, after |$made:ident| $after:expr)?;
    )*) => { $(
        through!(@one $is_on [$(#[$doc])*] $verb $name($($arg: $type),*) [$(-> $result)?] = $inner, $how
            [$($about)?] [$($before)?] [$($made $after)?]);
    )* };
    (
        @one $is_on:tt [$(#[$doc:meta])*]
        $verb:ident $name:ident($($arg:ident: $type:ty),*) [$(-> $result:ty)?] = $inner:path, $how:ident
            [$($about:expr)?] [$($before:expr)?] [$($made:ident $after:expr)?]
    ) => {
        $(#[$doc])*
        #[allow(unused_unsafe, reason = "some of the functions ask nothing of their caller")]
        pub(crate) extern "C" fn $name($($arg: $type),*) $(-> $result)? {
            if $crate::boundary::through::nobody!($is_on) {
                // SAFETY: the program calls the function according to its contract.
                return unsafe { $inner($($arg),*) };
            }
            let about = $crate::boundary::through::about!($($about)?);
            let verb = softnic_runtime::api::call_faults::Verb::$verb;
            match $crate::boundary::before::before(verb, about) {
                Ok(()) => {}
                Err($crate::boundary::before::Early::Failed { errno, .. }) => {
                    return $crate::boundary::through::failed!($how errno);
                }
                Err($crate::boundary::before::Early::Done) => return $crate::boundary::through::succeeded!($how),
            }
            $($before;)?
            // SAFETY: as above.
            let result = unsafe { $inner($($arg),*) };
            $(
                let $made = result;
                $after;
            )?
            result
        }
    };
}

pub(crate) use {about, failed, nobody, succeeded, through};
