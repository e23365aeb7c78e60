// SPDX-License-Identifier: Apache-2.0
// The user's settings. The browser keeps them on this machine.
import { api } from './api.js';

export const defaults = {
    /** Whether Todoku takes over downloads of the browser. */
    takeOver: false,
    /** Bytes from which a download is taken over. */
    minimumSize: 10 * 1024 * 1024,
    /** Types of files that are taken over whatever their size, and types that are never taken over. */
    always: '',
    never: 'text/html',
    /** Hosts from which nothing is taken over. The hosts below them count, too. */
    neverFrom: '',
    /** Whether answers to forms are taken over, too. A form is then sent a second time. */
    forms: false,
    /** Whether Todoku gets the cookies for a file's URL. */
    cookies: true,
};

/** The settings. A value of a wrong type counts as its default. */
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
