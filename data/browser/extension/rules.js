// SPDX-License-Identifier: Apache-2.0
// The rules of the extension. No function here needs a browser, so the tests call them in gjs.

/** The words of a list that a person has typed, in lower case. Commas, semicolons (also Japanese ones) or blanks separate them. */
export function words(list) {
    return list.toLowerCase().split(/[\s,;、，；]+/).filter(word => word !== '');
}

/** The host of an http or https URL, in lower case and without port; empty for any other URL. The URL is written as browsers do. */
export function hostOf(url) {
    const found = /^https?:\/\/(?:[^/?#@]*@)?(\[[^\]]*\]|[^/?#:]*)/i.exec(url);
    return found ? found[1].toLowerCase() : '';
}

/** Scheme, host and port of an http or https URL; empty for any other URL. */
function originOf(url) {
    const found = /^(https?:\/\/)(?:[^/?#@]*@)?([^/?#]*)/i.exec(url);
    return found ? (found[1] + found[2]).toLowerCase() : '';
}

/** Whether Todoku can fetch the URL. */
export function isFetchable(url) {
    return hostOf(url) !== '';
}

/** The host that a person means by a word: also by a whole URL, `*.example.org`, or a name in another script. */
function hostMeant(word) {
    const name = word.replace(/^https?:\/\//, '').replace(/^\*?\./, '').replace(/[/?#].*$/s, '');
    try {
        return new URL(`http://${name}`).hostname; // in a URL, 例え.jp is xn--r8jz45g.jp
    } catch {
        return name; // gjs has no URL
    }
}

/** Whether `host` is in the list, or below a host of the list. */
export function hasHost(list, host) {
    return words(list).map(hostMeant).some(name => name !== '' && (host === name || host.endsWith(`.${name}`)));
}

/** A URL without its fragment, which is no part of a request. */
export function withoutFragment(url) {
    return url.replace(/#.*$/s, '');
}

/** A number of 32 bits that stands for a text (FNV-1a of its UTF-16 units). Few texts share a number. */
export function numberOf(text) {
    let number = 0x811c9dc5;
    for (let place = 0; place < text.length; place++)
        number = Math.imul(number ^ text.charCodeAt(place), 0x01000193) >>> 0;
    return number;
}

/** Whether a browser shows an answer with these header fields as a page. */
export function isPage(contentType, contentDisposition) {
    return /^\s*(text\/html|application\/xhtml\+xml)\s*(;|$)/i.test(contentType) && !/^\s*attachment\s*(;|$)/i.test(contentDisposition);
}

/** The last component of a URL, without its query and fragment. */
export function baseName(url) {
    return url.replace(/[?#].*$/s, '').split('/').pop();
}

/** The name of a file, from its path on this machine. Such a name may have the signs that end the path of a URL. */
export function fileName(path) {
    return path.split('/').pop();
}

/** Whether a file has a type of the list. A type is a media type (`image/png`, `video/*`) or the end of a name (`iso`, `.iso`). */
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
 * Decides whether Todoku takes over a download that the browser has begun, and says why.
 *
 * `download` has the fields url, firstUrl (before redirects; undefined: not known), size (bytes; 0: unknown), mediaType, name, isExtension
 * (whether another extension began the download), danger (Chromium's word; undefined: none), isForm (whether the file answers a form) and
 * form (undefined: the form cannot be sent again).
 */
export function judge(download, settings) {
    const leave = reason => ({ takes: false, reason });
    if (!settings.takeOver)
        return leave('off');
    if (!isFetchable(download.url))
        return leave('scheme');
    if (download.isExtension)
        return leave('extension');
    // `accepted`: Chromium has warned, and the user wants the file.
    if (download.danger && !['safe', 'accepted'].includes(download.danger))
        return leave('danger');
    // A page of another host must not have a form sent with cookies that the browser would not send from there (SameSite).
    if (download.isForm && !(settings.forms && download.form && hostOf(download.form.page) === hostOf(download.url)))
        return leave('form');
    // A person names the site of the link, which may redirect to another site.
    if ([download.url, download.firstUrl ?? ''].some(url => hasHost(settings.neverFrom, hostOf(url))))
        return leave('site');
    const name = download.name || baseName(download.url);
    if (hasType(settings.never, download.mediaType, name))
        return leave('type');
    if (hasType(settings.always, download.mediaType, name))
        return { takes: true, reason: 'type' };
    // From 0 bytes means every file, also a file of unknown size.
    if (settings.minimumSize === 0 || (download.size > 0 && download.size >= settings.minimumSize))
        return { takes: true, reason: 'size' };
    return leave(download.size > 0 ? 'size' : 'unknown-size');
}

/**
 * The referrer by the default policy of browsers, strict-origin-when-cross-origin. A page's own origin gets the page's URL without user,
 * password and fragment. Other origins get the page's origin, and an http server gets nothing from an https page.
 */
export function referrer(page, url) {
    const origin = originOf(page ?? '');
    if (origin === '' || originOf(url) === '' || (/^https:/i.test(page) && !/^https:/i.test(url)))
        return '';
    if (origin !== originOf(url))
        return `${origin}/`;
    return page.replace(/#.*$/s, '').replace(/^(https?:\/\/)[^/?#@]*@/i, '$1');
}

/** The fields of a cookie in a message. `expires` has whole seconds, up to the year 9999. */
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
 * The body of a form that is sent again, and its media type: `{body, type}`.
 *
 * undefined: the form cannot be sent again, because it has files or bytes that are not UTF-8, or is too long. `requestBody` comes from
 * webRequest.onBeforeRequest, `type` is the request's Content-Type.
 */
export function formBody(requestBody, type, mostBytes) {
    const media = (type ?? '').split(';')[0].trim().toLowerCase();
    let body;
    if (requestBody?.formData && media === 'application/x-www-form-urlencoded') {
        // Chromium gives bytes that are not UTF-8 as an ArrayBuffer in a value, and as U+FFFD in a name.
        const texts = Object.entries(requestBody.formData).flat(2);
        if (!texts.every(text => typeof text === 'string' && !text.includes('\ufffd')))
            return undefined;
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
