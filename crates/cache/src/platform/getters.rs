//! Methods that return a field.

/// Writes methods of a type which return its private fields of the same name: a reference after `&`, else a copy.
macro_rules! getters {
    ($name:ident { $($rest:tt)* }) => {
        impl $name {
            $crate::platform::getters::getters!(@ $($rest)*);
        }
    };
    (@) => {};
    (@ $field:ident: &$type:ty, $($rest:tt)*) => {
        #[inline]
        pub(crate) fn $field(&self) -> &$type {
            &self.$field
        }
        $crate::platform::getters::getters!(@ $($rest)*);
    };
    (@ $field:ident: $type:ty, $($rest:tt)*) => {
        #[inline]
        pub(crate) fn $field(&self) -> $type {
            self.$field
        }
        $crate::platform::getters::getters!(@ $($rest)*);
    };
}

pub(crate) use getters;
