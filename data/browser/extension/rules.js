// SPDX-License-Identifier: Apache-2.0
// The rules of the extension: functions of their arguments alone, which the tests call without a browser.

/** The words of a list as people type it, separated by commas, semicolons or blanks; in lower case. */
export function words(list) {
    return list.toLowerCase().split(/[\s,;]+/).filter(word => word !== '');
}

/** The host of an http or https URL as a browser writes it, in lower case and without port; empty for any other URL. */
export function hostOf(url) {
    const found = /^https?:\/\/(?:[^/?#@]*@)?(\[[^\]]*\]|[^/?#:]*)/i.exec(url);
    return found ? found[1].toLowerCase() : '';
}

/** Scheme, host and port of an http or https URL; empty for any other URL. */
function originOf(url) {
    const found = /^(https?:\/\/)(?:[^/?#@]*@)?([^/?#]*)/i.exec(url);
    return found ? (found[1] + found[2]).toLowerCase() : '';
}

/** Whether a download service can fetch the URL. */
export function isFetchable(url) {
    return hostOf(url) !== '';
}

/** Whether `host` is in the list, or below a host of the list. */
export function hasHost(list, host) {
    return words(list).some(word => {
        const name = word.replace(/^\*?\./, '');
        return name !== '' && (host === name || host.endsWith(`.${name}`));
    });
}

/** The last component of a path or URL, without query and fragment. */
export function baseName(path) {
    return path.replace(/[?#].*$/s, '').split('/').pop();
}

/**
 * Whether a file is of a type of the list. A word of the list is a media type (`image/png`, `video/*`) or the extension of a name (`iso`,
 * `.iso`).
 */
export function hasType(list, mediaType, name) {
    const type = (mediaType ?? '').split(';')[0].trim().toLowerCase();
    const lower = (name ?? '').toLowerCase();
    return words(list).some(word => {
        if (!word.includes('/'))
            return lower.endsWith(word.startsWith('.') ? word : `.${word}`);
        return word.endsWith('/*') ? type.startsWith(word.slice(0, -1)) : type === word;
    });
}

/**
 * Whether Todoku takes over a download that the browser has begun, and why.
 *
 * `download` has the fields url, size (bytes; 0: unknown), mediaType, name, isExtension (an extension began it), danger (Chromium's word;
 * undefined: none), isForm (it answers a form) and hasBody (the form is known, and can be sent again).
 */
export function judge(download, settings) {
    const leave = reason => ({ takes: false, reason });
    if (!settings.takeOver)
        return leave('off');
    if (!isFetchable(download.url))
        return leave('scheme');
    if (download.isExtension)
        return leave('extension');
    // The browser warns of such a file, or has asked about it already.
    if (download.danger && !['safe', 'accepted'].includes(download.danger))
        return leave('danger');
    if (download.isForm && !(settings.forms && download.hasBody))
        return leave('form');
    if (hasHost(settings.neverFrom, hostOf(download.url)))
        return leave('site');
    const name = download.name || baseName(download.url);
    if (hasType(settings.never, download.mediaType, name))
        return leave('type');
    if (hasType(settings.always, download.mediaType, name))
        return { takes: true, reason: 'type' };
    // From 0 bytes: every file, also one whose size is not known.
    if (settings.minimumSize === 0 || (download.size > 0 && download.size >= settings.minimumSize))
        return { takes: true, reason: 'size' };
    return leave(download.size > 0 ? 'size' : 'unknown-size');
}

/**
 * The referrer that a browser would send by its default policy, strict-origin-when-cross-origin: the page's URL to its own origin, only the
 * origin to others, and nothing from https to http. Without user, password and fragment.
 */
export function referrer(page, url) {
    const origin = originOf(page ?? '');
    if (origin === '' || originOf(url) === '' || (/^https:/i.test(page) && !/^https:/i.test(url)))
        return '';
    if (origin !== originOf(url))
        return `${origin}/`;
    return page.replace(/#.*$/s, '').replace(/^(https?:\/\/)[^/?#@]*@/i, '$1');
}

/** A cookie of the browser as the program expects it. */
export function cookieFields(cookie) {
    return {
        'domain': cookie.domain,
        'host-only': cookie.hostOnly,
        'path': cookie.path,
        'secure': cookie.secure,
        'expires': cookie.session ? 0 : Math.min(Math.max(0, Math.floor(cookie.expirationDate ?? 0)), 253402300799),
        'name': cookie.name,
        'value': cookie.value,
    };
}

/**
 * The body that sends a form again, and its media type: `{body, type}`. undefined: it cannot be sent again, because it has files or bytes
 * that are no text, or is too long.
 *
 * `requestBody` is the browser's (webRequest.onBeforeRequest), `type` the field Content-Type of the request.
 */
export function formBody(requestBody, type, mostBytes) {
    const media = (type ?? '').split(';')[0].trim().toLowerCase();
    let body;
    if (requestBody?.formData && media === 'application/x-www-form-urlencoded') {
        const encode = value => encodeURIComponent(value).replace(/%20/g, '+');
        body = Object.entries(requestBody.formData)
            .flatMap(([name, values]) => values.map(value => `${encode(name)}=${encode(value)}`)).join('&');
    } else if (requestBody?.raw && media !== '' && !media.startsWith('multipart/') && requestBody.raw.every(part => part.bytes)) {
        const bytes = new Uint8Array(requestBody.raw.reduce((sum, part) => sum + part.bytes.byteLength, 0));
        let place = 0;
        for (const part of requestBody.raw) {
            bytes.set(new Uint8Array(part.bytes), place);
            place += part.bytes.byteLength;
        }
        try {
            body = new TextDecoder('utf-8', { fatal: true }).decode(bytes);
        } catch {
            return undefined;
        }
    }
    return body === undefined || new TextEncoder().encode(body).length > mostBytes ? undefined : { body, type };
}
