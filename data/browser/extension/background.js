// SPDX-License-Identifier: Apache-2.0
// Handles the extension's events. The browser starts this script for an event, and ends the script when it has nothing to do. The browser
// counts only listeners that are added at once, so the script adds all of them, and removes some when it knows the settings.
import { api, isFirefox, text } from './api.js';
import { HostError, queue } from './host.js';
import * as requests from './requests.js';
import { isFetchable, referrer } from './rules.js';
import { load } from './settings.js';
import { takeOver } from './takeover.js';

/** How long Chromium holds a download for us, in milliseconds. Without an answer, Chromium would continue after 15 seconds. */
const MOST_WAIT = 10_000;

const CONTEXTS = ['link', 'image', 'video', 'audio'];

let settings = begin();

function begin() {
    const loading = load();
    loading.then(listen);
    return loading;
}

/** Adds the listeners that the settings need, and removes the others. */
function listen({ takeOver: isOn, forms }) {
    if (isOn)
        listenToDownloads();
    else
        forgetDownloads();
    if (isOn && forms)
        requests.watchForms();
    else
        requests.unwatchForms();
}

function listenToDownloads() {
    requests.watch();
    // A listener that is there already is not added again.
    if (isFirefox)
        api.downloads.onCreated.addListener(onCreated);
    else
        api.downloads.onDeterminingFilename.addListener(onDeterminingFilename);
}

function forgetDownloads() {
    requests.unwatch();
    if (isFirefox)
        api.downloads.onCreated.removeListener(onCreated);
    else
        api.downloads.onDeterminingFilename.removeListener(onDeterminingFilename);
}

listenToDownloads();
requests.watchForms();

api.storage.onChanged.addListener((changes, area) => {
    if (area === 'local')
        settings = begin();
});

// MARK: Taking over

async function tryToTakeOver(item) {
    try {
        const isTaken = await takeOver(item, await settings);
        if (isTaken)
            await showFault('');
        return isTaken;
    } catch (error) {
        // The browser's own download continues, so the button shows the fault, and no toast does. A private download leaves no words there.
        await showFault(item.incognito ? text('notSaved') : sentence(error));
        return false;
    }
}

function onCreated(item) {
    if (item.state === 'in_progress')
        tryToTakeOver(item);
}

/** Chromium asks for the name of the file, and shows its own dialog only after our answer. */
function onDeterminingFilename(item, suggest) {
    let isReleased = false;
    const release = () => {
        if (!isReleased)
            suggest();
        isReleased = true;
    };
    const timer = setTimeout(release, MOST_WAIT);
    tryToTakeOver(item).then(isTaken => {
        clearTimeout(timer);
        if (!isTaken)
            release();
    });
    return true; // the answer comes later
}

// MARK: Save with Todoku

api.runtime.onInstalled.addListener(async () => {
    await api.contextMenus.removeAll();
    for (const context of CONTEXTS) {
        api.contextMenus.create({
            id: context,
            title: text(`save_${context}`),
            contexts: [context],
            targetUrlPatterns: ['http://*/*', 'https://*/*'],
        });
    }
});

api.contextMenus.onClicked.addListener((info, tab) => {
    const url = info.menuItemId === 'link' ? info.linkUrl : info.srcUrl;
    save(url, info.frameUrl || info.pageUrl, tab);
});

/** Queues the file at `url` for a person on the page `page`. */
async function save(url, page, tab) {
    try {
        if (!isFetchable(url ?? ''))
            throw new HostError('UnsupportedScheme', text('errorScheme'));
        const download = { url, referrer: referrer(page, url), isPrivate: tab?.incognito ?? false, storeId: await storeOf(tab) };
        const path = await queue(download, await settings);
        await showFault('');
        return { download: path };
    } catch (error) {
        // What a private window downloads is told to nobody outside of it.
        const words = tab?.incognito ? text('notSaved') : sentence(error);
        await showFault(words);
        await api.notifications.create({
            type: 'basic',
            iconUrl: api.runtime.getURL('icons/todoku-128.png'),
            title: text('notSaved'),
            message: tab?.incognito ? '' : words,
        });
        return { error: sentence(error) };
    }
}

/** The cookie store of a tab; undefined: the store of ordinary windows; null: the store of a private window cannot be found. */
async function storeOf(tab) {
    const unknown = tab?.incognito ? null : undefined;
    if (!tab || isFirefox)
        return tab?.cookieStoreId ?? unknown;
    return (await api.cookies.getAllCookieStores()).find(store => store.tabIds.includes(tab.id))?.id ?? unknown;
}

// The page of settings asks for a download, and shows the answer.
api.runtime.onMessage.addListener((message, sender, answer) => {
    if (message?.type !== 'save' || !sender.url?.startsWith(api.runtime.getURL('')))
        return false;
    save(message.url, undefined, sender.tab).then(answer);
    return true; // the answer comes later
});

api.action.onClicked.addListener(() => api.runtime.openOptionsPage());

// MARK: What people see

const sentence = error => error instanceof HostError ? error.message : text('errorUnknown', error?.message ?? error);

/** Marks the button with a fault, until a later download succeeds. An empty fault removes the mark. */
async function showFault(fault) {
    await api.action.setBadgeText({ text: fault ? '!' : '' });
    await api.action.setTitle({ title: fault ? `${text('name')}: ${fault}` : text('name') });
}
