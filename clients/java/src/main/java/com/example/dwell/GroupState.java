package com.example.dwell;

/** Whether a group delivers. */
public enum GroupState {
    /** It delivers. */
    ACTIVE,
    /** It is paused. */
    PAUSED,
    /** Its window is closed. */
    CLOSED,
    /** It is being made as a copy of another group. */
    COPYING,
    /** A word that this version does not know. */
    UNKNOWN
}
