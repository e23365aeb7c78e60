// SPDX-License-Identifier: Apache-2.0
// Takes over a download of the browser. The browser's own download continues until Todoku has saved its download on disk, so that nothing
// is lost if Todoku refuses.
import { api, isFirefox } from './api.js';
import { ask, queue } from './host.js';
import * as requests from './requests.js';
import { fileName, judge, referrer } from './rules.js';

/** Firefox may learn the size a moment after the download has begun. So the extension asks so many times, with pauses between. */
const LOOKS = 10;
const LOOK_DELAY = 200; // milliseconds

const wait = milliseconds => new Promise(resolve => setTimeout(resolve, milliseconds));

async function state(id) {
    const [item] = await api.downloads.search({ id });
    return item?.state;
}

/** Whether the extension may see the requests of pages. Without them, it cannot tell whether a file answers a form. */
const seesRequests = () => api.permissions.contains({ origins: ['http://*/*', 'https://*/*'] });

async function describe(item) {
    const url = item.finalUrl || item.url;
    const request = isFirefox ? await requests.takeLate(url) : requests.take(url);
    return {
        url,
        // Firefox tells one URL of a download, usually the last.
        firstUrl: item.url,
        size: Math.max(item.totalBytes ?? 0, request?.size ?? 0, 0),
        mediaType: item.mime,
        // Firefox may already have added a number, as in "name(1).ext", because the name is taken.
        name: isFirefox ? '' : fileName(item.filename ?? ''),
        // Firefox gives the whole URL of the page, also to another site.
        referrer: referrer(item.referrer, url),
        isExtension: Boolean(item.byExtensionId),
        danger: item.danger,
        isForm: request?.isForm || await requests.hasAnsweredForm(url),
        form: request?.form,
        isPrivate: item.incognito,
        storeId: await storeOf(item),
    };
}

/** The cookie store of a download; undefined: the store of ordinary windows; null: the store of private windows cannot be found. */
async function storeOf(item) {
    if (isFirefox)
        return item.cookieStoreId ?? (item.incognito ? null : undefined);
    if (!item.incognito)
        return undefined;
    // Chromium has a second store while a private window is open.
    return (await api.cookies.getAllCookieStores()).map(store => store.id).find(id => id !== '0') ?? null;
}

/** Whether Todoku takes over the download. Waits for a size that the browser does not know yet. */
async function isWanted(item, download, settings) {
    const named = { ...download, name: download.name || fileName(item.filename ?? '') };
    let verdict = judge(named, settings);
    for (let look = 0; isFirefox && verdict.reason === 'unknown-size' && look < LOOKS; look++) {
        await wait(LOOK_DELAY);
        const [now] = await api.downloads.search({ id: item.id });
        if (now?.state !== 'in_progress')
            return false;
        verdict = judge({ ...named, size: Math.max(now.totalBytes ?? 0, 0) }, settings);
    }
    return verdict.takes;
}

/**
 * Takes over the download if the settings say so.
 *
 * Returns true if Todoku has the download now, and the browser's own is gone. Throws a HostError if Todoku refuses the download; the
 * browser's own continues then.
 */
export async function takeOver(item, settings) {
    if (!settings.takeOver || !(await seesRequests()))
        return false;
    const download = await describe(item);
    if (!(await isWanted(item, download, settings)))
        return false;
    const path = await queue(download, settings);
    // Meanwhile the browser may have the whole file, or somebody may have cancelled the download.
    const isRunning = (await state(item.id)) === 'in_progress';
    if (isRunning)
        await api.downloads.cancel(item.id).catch(() => {});
    if (!isRunning || (await state(item.id)) === 'complete') {
        await ask({ type: 'remove', download: path });
        return false;
    }
    await api.downloads.erase({ id: item.id });
    return true;
}
