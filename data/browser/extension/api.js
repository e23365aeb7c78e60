// SPDX-License-Identifier: Apache-2.0
// The browser's interface for extensions: `browser` in Firefox, `chrome` in Chromium.
export const api = globalThis.browser ?? globalThis.chrome;

// Only Firefox's manifest has this key.
export const isFirefox = 'browser_specific_settings' in api.runtime.getManifest();

export const text = (name, ...values) => api.i18n.getMessage(name, values.map(String));
