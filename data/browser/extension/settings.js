// SPDX-License-Identifier: Apache-2.0
// What the user has set, kept by the browser on this machine.
import { api } from './api.js';

export const defaults = {
    /** Whether Todoku takes over downloads of the browser. Off, until somebody turns it on. */
    takeOver: false,
    /** Bytes from which a download is taken over. */
    minimumSize: 10 * 1024 * 1024,
    /** Types that are taken over whatever their size, and types that never are. */
    always: '',
    never: 'text/html',
    /** Hosts from which nothing is taken over, with the hosts below them. */
    neverFrom: '',
    /** Whether answers to forms are taken over, too. The form is then sent a second time. */
    forms: false,
    /** Whether the cookies for a file's URL go with the download. */
    cookies: true,
};

/** The settings. A value of another type, as an older version may have left, is replaced by its default. */
export async function load() {
    const stored = await api.storage.local.get(defaults);
    const settings = { ...defaults };
    for (const key of Object.keys(defaults)) {
        if (typeof stored[key] === typeof defaults[key] && !(typeof stored[key] === 'number' && !Number.isFinite(stored[key])))
            settings[key] = stored[key];
    }
    return settings;
}

export const save = changes => api.storage.local.set(changes);
