//! The reasons of a run's condition that are not those of the object which was made for it.

/// Why a run is as it is, besides what its object says.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reason {
    /// Its object is made. As Tekton's own controllers say.
    Started,
    /// An attempt failed, and the next one is made.
    Retrying,
    /// Done. As Tekton's own controllers say.
    Succeeded,
    /// Cancelled. Tekton looks at this word.
    CustomRunCancelled,
    /// The attempt took longer than `spec.timeout`. Tekton looks at this word.
    CustomRunTimedOut,
    /// The run has workspaces. Tekton's word.
    CustomRunWorkspaceNotSupported,
    /// Kind, spec or parameters are wrong: nothing is made.
    InvalidSpec,
    /// The object that the task names is not there.
    TemplateNotFound,
    /// An object of the wanted name is another's.
    NameTaken,
    /// The API server does not take the object: a policy, a quota, a right.
    Refused,
    /// The object was deleted before it had ended.
    Deleted,
}

impl Reason {
    /// All of them.
    pub const ALL: [Self; 11] = [
        Self::Started,
        Self::Retrying,
        Self::Succeeded,
        Self::CustomRunCancelled,
        Self::CustomRunTimedOut,
        Self::CustomRunWorkspaceNotSupported,
        Self::InvalidSpec,
        Self::TemplateNotFound,
        Self::NameTaken,
        Self::Refused,
        Self::Deleted,
    ];

    /// The word as it stands in the condition.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Started => "Started",
            Self::Retrying => "Retrying",
            Self::Succeeded => "Succeeded",
            Self::CustomRunCancelled => "CustomRunCancelled",
            Self::CustomRunTimedOut => "CustomRunTimedOut",
            Self::CustomRunWorkspaceNotSupported => "CustomRunWorkspaceNotSupported",
            Self::InvalidSpec => "InvalidSpec",
            Self::TemplateNotFound => "TemplateNotFound",
            Self::NameTaken => "NameTaken",
            Self::Refused => "Refused",
            Self::Deleted => "Deleted",
        }
    }
}
