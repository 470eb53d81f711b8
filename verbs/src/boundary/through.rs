//! How a function of the boundary is written: one line for each.
//!
//! `Verb name(arguments) -> result = verb, how it fails, about …, before …, after |result| …;`
//!
//! - How it fails: `errno` (which is returned, and set), `minus_one`, `null` (errno is set) or `never`.
//! - `about`: what faults may ask of it, an [`super::before::About`]; left out, nothing.
//! - `before`: what the observer hears before the verb is called, as of an object that goes.
//! - `after`: what it hears after it, with the result.

/// What a call returns that a fault fails.
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

/// What there is to know of a call: nothing, unless its line says so.
macro_rules! about {
    () => {
        $crate::boundary::before::About::default()
    };
    ($about:expr) => {
        $about
    };
}

/// Whether nobody is there: the function in brackets says so. Without one somebody is.
macro_rules! nobody {
    ([]) => {
        false
    };
    ([$is_on:path]) => {
        !$is_on()
    };
}

/// Functions, each with its three points. In brackets before them: what says whether anybody is there, of those that are exported.
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
                // SAFETY: the program calls it by its contract.
                return unsafe { $inner($($arg),*) };
            }
            let about = $crate::boundary::through::about!($($about)?);
            let verb = softnic_runtime::api::call_faults::Verb::$verb;
            if let Err(e) = $crate::boundary::before::before(verb, about) {
                return $crate::boundary::through::failed!($how e);
            }
            $($before;)?
            // SAFETY: the same.
            let result = unsafe { $inner($($arg),*) };
            $(
                let $made = result;
                $after;
            )?
            result
        }
    };
}

pub(crate) use {about, failed, nobody, through};
