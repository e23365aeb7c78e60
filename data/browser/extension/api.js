// SPDX-License-Identifier: Apache-2.0
// The browser's interface for extensions. Firefox calls it `browser`, Chromium `chrome`.
export const api = globalThis.browser ?? globalThis.chrome;

// Firefox has no downloads.onDeterminingFilename, but an object of that name; so the manifest tells which browser this is.
export const isFirefox = 'browser_specific_settings' in api.runtime.getManifest();

export const text = (name, ...values) => api.i18n.getMessage(name, values.map(String));
